// A program in another language places an order: node web/checkout.mjs http://127.0.0.1:8090/v1alpha1 7
// It calls the HTTP API, whose address the panel of `delayq run` shows. Node.js 18 or newer, and no package.

const [api, order] = process.argv.slice(2);
const answer = await fetch(`${api}/tasks/cancel_unpaid/order-${encodeURIComponent(order)}`, {
  method: "PUT", // a repeated request schedules nothing: the ID is the same
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({ delay: "30m", payload: { order: Number(order) } }),
});
const said = await answer.json();
if (!answer.ok) {
  console.error(said.detail);
  process.exit(1);
}
console.log(`${said.id} ${said.outcome}, due ${said.due}`);
