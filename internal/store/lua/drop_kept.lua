-- unkeep forgets payloads that are kept for failure records which have been removed.
--
-- KEYS[1] resqued:parked
-- ARGV    prefix, ids; what is parked under one for another reason stays
-- RETURNS how many were forgotten

local prefix, n = ARGV[1], 0
local wrong = parked.lacks(prefix)
if wrong then return redis.error_reply(match(wrong, '^NOPERM') and wrong or 'RESQUEDTYPE ' .. wrong .. '; move it away') end
call('PERSIST', KEYS[1]) -- the first write
for i = 2, #ARGV do
  local meta = pcall_('HGET', KEYS[1], ARGV[i])
  if type(meta) == 'string' and match(meta, '^1 l ') then
    parked.drop(prefix, ARGV[i])
    n = n + 1
  end
end
return n
