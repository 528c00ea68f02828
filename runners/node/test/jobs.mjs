// The application of the tests, as an ES module.

import {setTimeout as sleep} from 'node:timers/promises';
import {spawnSync} from 'node:child_process';
import * as resqued from '../lib/index.js';

export async function MakesRoom() {
  this.progress(1);
  await sleep(600000, undefined, {signal: this.leaving}).catch(() => {});
  this.discard('made room');
}

export function Interrupted() {
  this.interrupted();
}

export async function Cleanup() {
  try {
    await sleep(600000, undefined, {signal: this.signal});
  } catch {
    resqued.discard(`cleaned up after ${resqued.current().cancelled.why}`);
  }
}

export function Aborted() {
  return new Promise((resolve, reject) => {
    const {signal} = resqued.current();
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

export async function Whose(name) {
  await sleep(1);
  resqued.discard(`${name}: ${resqued.current().job.class} ${resqued.current().job.args}`);
}

export function Throws(what) {
  if (what === 'text') throw 'only a text';
  if (what === 'nothing') throw undefined;
  if (what === 'cause') throw new Error('outer', {cause: new RangeError('inner')});
  if (what === 'odd') throw {get message() { throw new Error('no'); }};
  if (what === 'late') return Promise.reject(new TypeError('late'));
  throw Object.assign(new Error('coded'), {name: 'CodedError'});
}

export function TooLong() {
  resqued.log('x');
  resqued.current().report({state: {x: 'x'.repeat(9 << 20)}});
}

export async function Outlives() {
  const context = resqued.current();
  setTimeout(() => context.progress(1, 2), 5);
}

export function Inherited() {
  // A program that a job starts must not have the runner's socket.
  const {stdout} = spawnSync('ls', ['-l', '/proc/self/fd'], {stdio: ['ignore', 'pipe', 'ignore']});
  resqued.discard(String(String(stdout).split('\n').filter((line) => line.includes('socket')).length));
}

export async function Uncaught() {
  setTimeout(() => { throw new Error('nobody catches it'); }, 1);
  await sleep(600000);
}

export async function Unhandled() {
  Promise.reject(new Error('nobody handles it'));
  await sleep(600000);
}

export const Yields = resqued.longJob(async (run) => {
  await run.save({a: 1}, {done: 1, total: 2});
  while (!run.over) await sleep(1);
  run.yield();
});

export const more = new Map([['Billing::Close', () => resqued.discard('by a Map')]]);
export default {Default: () => resqued.discard('by default')};
