'use strict';

const fs = require('node:fs');
const {load} = require('./handlers');
const {Worker} = require('./worker');

const USAGE = `usage: resqued-runner FILE...

Loads the files (CommonJS or ES modules), whose exported functions perform the jobs of the class
of that name, and performs the jobs that resqued hands it. It is not run by hand: name it in the
configuration of resqued,

    runners:
      app:
        command: [npx, resqued-runner, jobs.js]
        fork: false
    handlers:
      "*": {runner: app}
`;

function fail(message, code) {
  fs.writeSync(2, `resqued-runner: ${message}\n`);
  process.reallyExit(code);
}

async function main(files) {
  if (files.length === 0 || files[0] === '-h' || files[0] === '--help') {
    fs.writeSync(files.length ? 1 : 2, USAGE);
    process.exit(files.length ? 0 : 64);
  }
  if (process.env.RESQUED_FORK_FD !== undefined) {
    const runner = process.env.RESQUED_RUNNER || 'NAME';
    fail(`Node cannot fork, so it can be no template: write \`fork: false\` in the configuration, at runners: ${runner}`, 78);
  }
  const descriptor = Number(process.env.RESQUED_FD);
  if (!Number.isInteger(descriptor) || descriptor < 3) {
    fail(`RESQUED_FD is ${process.env.RESQUED_FD}, and has to be the descriptor that resqued passes\n\n${USAGE}`, 64);
  }
  const concurrency = Number(process.env.RESQUED_CONCURRENCY || 1);
  if (!Number.isInteger(concurrency) || concurrency < 1) {
    fail(`RESQUED_CONCURRENCY is ${process.env.RESQUED_CONCURRENCY}, and has to be a number`, 64);
  }
  delete process.env.RESQUED_FD;
  let handlers;
  try {
    handlers = await load(files);
  } catch (error) {
    fail(error && error.stack ? error.stack : String(error), 1);
  }
  new Worker({descriptor, concurrency, handlers, app: files.join(' ')});
}

module.exports = {main};
