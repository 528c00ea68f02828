// work.js PORT NAMESPACE QUEUE COUNT
// works COUNT jobs and prints one line for each: its class and its arguments.
const { Worker } = require("node-resque");

const [port, namespace, name, count] = process.argv.slice(2);

(async () => {
  const connection = { pkg: "ioredis", host: "127.0.0.1", port: Number(port), database: 0, namespace };
  let left = Number(count);
  const perform = (klass) => ({
    perform: async (...args) => { console.log(`${klass} ${JSON.stringify(args)}`); },
  });
  const worker = new Worker(
    { connection, queues: [name], timeout: 10 },
    { Greet: perform("Greet"), Sum: perform("Sum") },
  );
  worker.on("error", (error) => { throw error; });
  worker.on("failure", (queue, job, error) => { throw error; });
  await new Promise((resolve) => {
    worker.on("success", () => { if (--left === 0) resolve(); });
    worker.connect().then(() => worker.start());
  });
  await worker.end();
})();
