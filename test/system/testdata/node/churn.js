// churn.js PORT NAMESPACE
// starts and stops workers, one after another, until its input ends: each works
// for a moment, and the jobs of old workers are cleaned up each time. Prints what
// it has done as one line of JSON.
const os = require("os");
const { MultiWorker, Queue, Worker } = require("node-resque");

const [port, namespace] = process.argv.slice(2);
const connection = { pkg: "ioredis", host: "127.0.0.1", port: Number(port), database: 0, namespace };
const done = { rounds: 0, jobs: 0, nameless: 0, cleaned: [], errors: [] };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let over = false;
process.stdin.on("end", () => { over = true; }).resume();

(async () => {
  const queue = new Queue({ connection });
  // Jobs that do not name their worker are from programs other than node-resque.
  queue.on("error", (error) => {
    if (String(error).includes("force-cleaning worker undefined")) done.nameless++;
    else done.errors.push(String(error));
  });
  await queue.connect();
  const perform = async (id) => {
    done.jobs++;
    await queue.connection.redis.multi()
      .hincrby(`${namespace}:test:ran`, id, 1)
      .hincrby(`${namespace}:test:ran-by`, "node", 1).exec();
  };
  const jobs = { Count: { perform }, Sleep: { perform } };
  while (!over) {
    const options = { connection, queues: [["*"], ["mail", "low"]][done.rounds % 2], timeout: 10 };
    const worker = done.rounds % 4 === 3
      ? new MultiWorker({ ...options, checkTimeout: 20, minTaskProcessors: 1, maxTaskProcessors: 3 }, jobs)
      : new Worker(options, jobs);
    let ended = false; // it goes on polling over a closed connection for a moment
    worker.on("error", (error) => { if (!ended) done.errors.push(String(error)); });
    worker.on("failure", (...failure) => done.errors.push(`failure ${failure.map(String)}`));
    if (worker.connect) await worker.connect();
    await worker.start();
    await pause(100);
    await worker.end();
    ended = true;
    // While no worker of its own runs: of these it would clean up the living, too.
    done.cleaned.push(...Object.keys(await queue.cleanOldWorkers(1)));
    done.rounds++;
  }
  // A worker of all queues that ends while it looks for them registers once more.
  const workers = queue.connection.key("workers");
  for (const id of await queue.connection.redis.smembers(workers)) {
    if (id.startsWith(`${os.hostname()}:${process.pid}`)) await queue.connection.redis.srem(workers, id);
  }
  await queue.end();
  console.log(JSON.stringify(done));
  process.exit(0);
})();
