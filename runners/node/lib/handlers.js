'use strict';
// The handlers: exported functions of the modules, by class.

const path = require('node:path');
const fs = require('node:fs');
const {createRequire} = require('node:module');
const {pathToFileURL} = require('node:url');

async function load(names) {
  const handlers = new Map();
  for (const name of names) {
    const file = path.resolve(name);
    const url = fs.existsSync(file) && fs.statSync(file).isFile()
      ? pathToFileURL(file).href
      : pathToFileURL(createRequire(path.join(process.cwd(), 'x.js')).resolve(fs.existsSync(file) ? file : name)).href;
    const before = handlers.size;
    add(handlers, await import(url), name);
    if (handlers.size === before) {
      throw new Error(`${name} exports no function: write exports.Mail = async function (…) {…} for the class Mail`);
    }
  }
  return handlers;
}

function add(handlers, namespace, name) {
  const one = (key, value) => {
    if (typeof value !== 'function' || typeof key !== 'string') return;
    const known = handlers.get(key);
    if (known && known !== value) throw new Error(`${name}: there are two functions for the class ${key}`);
    handlers.set(key, value);
  };
  const all = (value) => {
    if (value instanceof Map) value.forEach((function_, key) => one(key, function_));
    else if (value && typeof value === 'object') Object.entries(value).forEach(([key, member]) => one(key, member));
  };
  for (const key of Object.keys(namespace)) {
    // CommonJS exports are also the default.
    if (key === 'default' || key === 'module.exports') all(namespace[key]);
    else if (namespace[key] instanceof Map) all(namespace[key]);
    else one(key, namespace[key]);
  }
}

module.exports = {load};
