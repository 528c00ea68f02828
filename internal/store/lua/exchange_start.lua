-- exchange_start begins an exchange's reply and reads the requests. A part of exchange; see exchange_fast.
--
-- DEFINES  reply, fields, w, written, bytes: what was taken so far; obstacles: keys that prevent the fast path;
--          names, modes, nread, nextqueue: the queues, read a few at a time; wants, wantat, lead, tail
-- NEEDS    all parts before it
-- COST     0 commands

-- Tables are created in their final size, so that they never grow. Their initial values are meaningless.
local reply = {unpack(ARGV, 1, nwant < 1000 and nwant + 2 or 2)}
local fields = {unpack(ARGV, 1, nwant < 1000 and 2 * nwant or 0)} -- token, record, …
reply[1], reply[2] = '+' .. (alltold and string.rep('1', nready) or table.concat(applied)), 0
local w, written = 1, 0 -- the next want; how many of fields are in Redis
local bytes, maxbytes = 0, 4194304 -- a reply of many large payloads would block the server

-- obstacles are keys that prevent the fast path: of locked jobs, of death counts (only for their own jobs), of
-- locks that expired under their holders, of pauses. One command shows that, nearly always, none exists. Pauses
-- of later queues are checked at their turn. The last entry is a placeholder for the first queue's key.
local obstacles = {deathkey, counters, prefix .. 'resqued:relock', prefix .. 'pause:all', prefix .. 'pause-all-workers', prefix .. 'resqued:lined', counters}
local names, modes, nread, readat, lastmode, nextqueue = {}, {}, 0, 1, nil, 1
local list, wants, wantat = ARGV[queuesat], ARGV[wantsat], nil
local lead, tail, named -- common prefix and suffix of workers' names, and their length
if nwant > 0 then
  local a, b = byte(wants, 1, 2)
  a = a * 256 + b
  lead = sub(wants, 3, 2 + a)
  local c, d = byte(wants, 3 + a, 4 + a)
  c = c * 256 + d
  tail, named, wantat = sub(wants, 5 + a, 4 + a + c), a + c, 5 + a + c
end
local pairsof = '0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849'
  .. '5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899'
local length, digits -- of the last lock, also as text
