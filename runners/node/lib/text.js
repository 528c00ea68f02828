'use strict';
// The form of errors in `failed`.

const path = require('node:path');

const LINES = 200;
const LONGEST = 64 * 1024;
const HERE = path.dirname(__dirname) + path.sep;
const OWN = [path.join(HERE, 'lib') + path.sep, path.join(HERE, 'bin') + path.sep, 'node:'];

// Returns a property without trusting that it can be read.
function read(value, key) {
  try {
    return value[key];
  } catch {
    return undefined;
  }
}

function string(value) {
  try {
    return String(value);
  } catch {
    return 'a value that cannot be shown';
  }
}

function name(error) {
  if (error === null || (typeof error !== 'object' && typeof error !== 'function')) {
    return error === null || error === undefined ? 'Error' : error.constructor.name;
  }
  const own = read(error, 'name');
  const constructor = read(read(error, 'constructor') || {}, 'name');
  if (typeof own === 'string' && own !== '' && own !== 'Error') return own.slice(0, 200);
  if (typeof constructor === 'string' && constructor !== '') return constructor.slice(0, 200);
  return 'Error';
}

function message(error) {
  const said = error instanceof Error || (error && typeof read(error, 'message') === 'string')
    ? string(read(error, 'message')) : string(error);
  return said.length > LONGEST ? `${said.slice(0, LONGEST)}…` : said;
}

// Returns the lines of the stack as "file:line:in 'function'", innermost first, without the
// runner's own.
function backtrace(error) {
  const lines = [];
  const seen = new Set();
  for (let cause = error; cause && typeof cause === 'object' && !seen.has(cause) && lines.length < LINES; cause = read(cause, 'cause')) {
    if (cause !== error) lines.push(`caused by ${name(cause)}: ${message(cause).slice(0, 500)}`);
    seen.add(cause);
    const stack = read(cause, 'stack');
    if (typeof stack !== 'string') continue;
    for (const line of stack.split('\n')) {
      const found = /^ +at (?:(.*) \()?(?:file:\/\/)?(.*?):(\d+):\d+\)?$/.exec(line);
      if (!found || OWN.some((own) => found[2].startsWith(own))) continue;
      lines.push(`${found[2]}:${found[3]}:in '${found[1] || '<anonymous>'}'`.slice(0, 1000));
      if (lines.length >= LINES) break;
    }
  }
  return lines;
}

module.exports = {name, message, backtrace, string};
