'use strict';
// The socket of a runner: lines of JSON.

const net = require('node:net');

const LINE_FEED = 10;
// The longest line that resqued reads.
const LONGEST = 8 * 1024 * 1024;

class Channel {
  // Calls onLine(object), onBad(error, line) for a line that is not a JSON object, and onEnd().
  constructor(descriptor, {onLine, onBad, onEnd}) {
    this.onLine = onLine;
    this.onBad = onBad;
    this.chunks = []; // of an unfinished line
    this.socket = new net.Socket({fd: descriptor, readable: true, writable: true});
    this.socket.on('data', (chunk) => this.data(chunk));
    let over = false;
    const end = () => {
      if (!over) onEnd();
      over = true;
    };
    this.socket.on('end', end);
    this.socket.on('close', end);
    // resqued is gone, or has closed its end: 'close' follows.
    this.socket.on('error', () => {});
  }

  data(chunk) {
    let from = 0;
    for (;;) {
      const found = chunk.indexOf(LINE_FEED, from);
      if (found < 0) break;
      let line;
      if (this.chunks.length === 0) {
        line = chunk.utf8Slice(from, found);
      } else {
        // Decoded in one piece, because a character may be split between two chunks.
        this.chunks.push(chunk.subarray(from, found));
        line = Buffer.concat(this.chunks).toString('utf8');
        this.chunks = [];
      }
      from = found + 1;
      this.line(line);
    }
    if (from < chunk.length) this.chunks.push(from === 0 ? chunk : chunk.subarray(from));
  }

  line(line) {
    let object;
    try {
      object = JSON.parse(line);
      if (object === null || typeof object !== 'object' || Array.isArray(object)) {
        throw new TypeError('a line has to be an object');
      }
    } catch (error) {
      this.onBad(error, line);
      return;
    }
    this.onLine(object);
  }

  // Writes a line of JSON.
  send(line) {
    this.socket.write(line + '\n');
  }

  // Writes an object. If it is not JSON or too long, throws and writes nothing.
  tell(object) {
    const line = JSON.stringify(object);
    if (line.length > LONGEST / 3 && Buffer.byteLength(line) >= LONGEST) {
      throw new RangeError(`a line of ${Buffer.byteLength(line)} bytes is longer than resqued reads (${LONGEST})`);
    }
    this.send(line);
  }

  // Calls done when everything was written.
  flushed(done) {
    this.socket.write('', done);
  }
}

module.exports = {Channel};
