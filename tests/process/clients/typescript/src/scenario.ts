// The scenario of tests/process/test_api_clients.py with the types that openapi-typescript makes from openapi.json.
import createClient from "openapi-fetch";
import type { paths } from "./delayq.js";

declare const process: { argv: string[] };
const api = createClient<paths>({ baseUrl: process.argv[2] });

/** Print and return an answer; an error of the API ends the script. */
async function show<T>(call: Promise<{ data?: T; error?: unknown }>): Promise<T> {
  const { data, error } = await call;
  if (data === undefined) throw new Error(JSON.stringify(error));
  console.log(JSON.stringify(data));
  return data;
}

const path = { kind: "email", id: "order-7" };
for (const [order, delay] of [[7, "30m"], [8, "1h"]] as const) {
  const body = { payload: { order }, delay };
  await show(api.PUT("/v1alpha1/tasks/{kind}/{id}", { params: { path }, body }));
}
await show(api.GET("/v1alpha1/tasks/{kind}/{id}", { params: { path } }));
await show(api.PATCH("/v1alpha1/tasks/{kind}/{id}", { params: { path }, body: { delay: "3h" } }));
const tasks = [
  { kind: "email", id: "b1", delay: "1h" },
  { kind: "email", id: "b2", delay: "2h" },
];
await show(api.POST("/v1alpha1/tasks:batch", { body: { tasks } }));
const { cursor } = await show(api.GET("/v1alpha1/tasks", { params: { query: { limit: 2 } } }));
await show(api.GET("/v1alpha1/tasks", { params: { query: { limit: 2, cursor } } }));
await show(api.DELETE("/v1alpha1/tasks/{kind}/{id}", { params: { path } }));
await show(api.GET("/v1alpha1/deadletters", {}));
await show(api.POST("/v1alpha1/deadletters:redrive", { body: { ids: ["email:dead"], dryRun: true } }));
