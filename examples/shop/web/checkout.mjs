// An order service in Node.js 18 or newer, with no package. DELAYQ_URL is the address in the line `api` of `delayq run`:
//   DELAYQ_URL=http://127.0.0.1:8090 node web/checkout.mjs place 7
// Elsewhere, DELAYQ_TOKEN is a token of the API, and NODE_EXTRA_CA_CERTS a file with the CA of its certificate.

const ATTEMPTS = 5;
const AGAIN = [408, 429, 503];

/** Send a request until it has an answer that counts. A repeated one is harmless: the ID of the task is the same. */
async function call(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  if (process.env.DELAYQ_TOKEN) headers.Authorization = `Bearer ${process.env.DELAYQ_TOKEN}`;
  for (let attempt = 1; ; attempt++) {
    let seconds = 2 ** (attempt - 1);
    try {
      const answer = await fetch(`${process.env.DELAYQ_URL}/v1alpha1${path}`, {
        method,
        headers,
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(10_000),
      });
      const said = await answer.json();
      if (answer.ok) return said;
      if (!AGAIN.includes(answer.status) || attempt === ATTEMPTS) {
        throw Object.assign(new Error(said.detail), { status: answer.status, problem: said });
      }
      seconds = Math.max(seconds, Number(answer.headers.get("Retry-After")));
    } catch (error) {
      if (error.problem || attempt === ATTEMPTS) throw error; // the API refused it, or it stays away
    }
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

const task = (order) => `/tasks/cancel_unpaid/order-${encodeURIComponent(order)}`;

const commands = {
  place: (order, delay = "30m") => call("PUT", task(order), { delay, payload: { order: Number(order) }, tags: ["web"] }),
  extend: (order, delay) => call("PATCH", task(order), { delay }),
  async paid(order) {
    try {
      return await call("DELETE", task(order));
    } catch (error) {
      if (error.status === 404) return { outcome: "cancelled or done before" };
      throw error; // 409: its handler runs now; or it is a dead letter
    }
  },
  async tomorrow() {
    const day = (days) => new Date(new Date().setHours(24 * days, 0, 0, 0)).toISOString();
    const filter = { kind: "cancel_unpaid", dueFrom: day(1), dueBefore: day(2) };
    const found = [];
    for (let cursor; ; ) {
      const page = await call("GET", `/tasks?${new URLSearchParams(cursor ? { ...filter, cursor } : filter)}`);
      found.push(...page.items.map((each) => each.id));
      cursor = page.cursor;
      if (!cursor) return found;
    }
  },
  cancel: (tag, dryRun) => call("POST", "/tasks:cancel", { tag, kind: "cancel_unpaid", dryRun: dryRun === "--dry-run" }),
};

const [command, ...rest] = process.argv.slice(2);
try {
  console.log(JSON.stringify(await commands[command](...rest)));
} catch (error) {
  console.error(error.cause?.message || error.message); // fetch has the reason in its cause
  process.exit(1);
}
