package jobkey

import (
	"crypto/sha256"
	"encoding/binary"
)

// Bounds of each of the cache's two generations.
const (
	cacheEntries = 4096
	cacheBytes   = 2 << 20
)

// cache remembers the keys of payloads, as a locked job is looked at again and again. When the
// young generation is full, it becomes the old one, and unused entries are forgotten. The zero
// value is empty.
type cache struct {
	young, old map[identity]entry
	bytes      int // length of the keys of the young ones
}

// identity is a hash of queue and payload; payloads themselves would fill the cache with arguments.
type identity [sha256.Size]byte

type entry struct {
	key string
	ok  bool
}

func identify(queue string, payload []byte) identity {
	hash := sha256.New()
	hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(queue))))
	hash.Write([]byte(queue))
	hash.Write(payload)
	var id identity
	hash.Sum(id[:0])
	return id
}

func (c *cache) get(id identity) (entry, bool) {
	if e, ok := c.young[id]; ok {
		return e, true
	}
	e, ok := c.old[id]
	if ok {
		c.put(id, e)
	}
	return e, ok
}

func (c *cache) put(id identity, e entry) {
	if len(e.key) > cacheBytes {
		return
	}
	if c.young == nil || len(c.young) >= cacheEntries || c.bytes+len(e.key) > cacheBytes {
		c.young, c.old, c.bytes = map[identity]entry{}, c.young, 0
	}
	if _, known := c.young[id]; !known {
		c.bytes += len(e.key)
	}
	c.young[id] = e
}
