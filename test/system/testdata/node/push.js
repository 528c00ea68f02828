// push.js PORT NAMESPACE QUEUE CLASS FIRST LAST
// enqueues one job for each number from FIRST to LAST, as node-resque does.
const { Queue } = require("node-resque");

const [port, namespace, name, klass, first, last] = process.argv.slice(2);

(async () => {
  const connection = { pkg: "ioredis", host: "127.0.0.1", port: Number(port), database: 0, namespace };
  const queue = new Queue({ connection });
  queue.on("error", (error) => { throw error; });
  await queue.connect();
  const batch = 500;
  for (let i = Number(first); i <= Number(last); i += batch) {
    const pushes = [];
    for (let id = i; id < i + batch && id <= Number(last); id++) pushes.push(queue.enqueue(name, klass, [id]));
    await Promise.all(pushes);
  }
  await queue.end();
})();
