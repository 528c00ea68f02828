// later.js PORT NAMESPACE QUEUE CLASS FIRST LAST MILLISECONDS
// enqueues one job for each number from FIRST to LAST to run later, as node-resque does:
// by enqueueIn and by enqueueAt in turns.
const { Queue } = require("node-resque");

const [port, namespace, name, klass, first, last, ms] = process.argv.slice(2);

(async () => {
  const connection = { pkg: "ioredis", host: "127.0.0.1", port: Number(port), database: 0, namespace };
  const queue = new Queue({ connection });
  queue.on("error", (error) => { throw error; });
  await queue.connect();
  for (let id = Number(first); id <= Number(last); id++) {
    if (id % 2) await queue.enqueueIn(Number(ms), name, klass, [id]);
    else await queue.enqueueAt(Date.now() + Number(ms), name, klass, [id]);
  }
  await queue.end();
})();
