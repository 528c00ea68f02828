package rdb

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a server's self-description. Fields that it does not report (no right to INFO, another
// implementation) are empty.
type Server struct {
	Version string `json:"version,omitempty"`
	// Role is "master" or "slave".
	Role string `json:"role,omitempty"`
	// Memory is used memory, MemoryLimit maxmemory (0 = none), both in bytes.
	Memory      int64 `json:"memory,omitempty"`
	MemoryLimit int64 `json:"memory_limit,omitempty"`
	// Policy is maxmemory-policy.
	Policy string `json:"policy,omitempty"`
	// Clients is the number of connected clients, ClientLimit is maxclients.
	Clients     int64 `json:"clients,omitempty"`
	ClientLimit int64 `json:"client_limit,omitempty"`
	// AppendOnly reports whether writes are logged; nil = unknown.
	AppendOnly *bool `json:"append_only,omitempty"`
	// Unsaved is the kind of saving that last failed: "append only file" or "snapshot".
	Unsaved string `json:"unsaved,omitempty"`
	// RoundTrip is the shortest of a few. Ahead is how far the server's clock is ahead of this
	// machine's, accurate to about a round trip.
	RoundTrip time.Duration `json:"-"`
	Ahead     time.Duration `json:"-"`
}

// Server asks the server about itself. It only fails if the server does not answer. In a cluster,
// one node answers.
func (c *Client) Server(ctx context.Context) (Server, error) {
	var s Server
	for range 3 {
		began := time.Now()
		now, err := c.Now(ctx)
		if err != nil {
			return s, err
		}
		if took := time.Since(began); s.RoundTrip == 0 || took < s.RoundTrip {
			s.RoundTrip, s.Ahead = took, now.Sub(began.Add(took/2))
		}
	}
	var text strings.Builder
	for _, section := range []string{"server", "replication", "memory", "clients", "persistence"} {
		part, err := c.Read.Info(ctx, section).Result()
		if err != nil && Unreachable(err) {
			return s, err
		}
		text.WriteString(part + "\n")
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(InfoField(text.String(), name), 10, 64)
		return n
	}
	s.Version, s.Role = InfoField(text.String(), "redis_version"), InfoField(text.String(), "role")
	s.Memory, s.MemoryLimit, s.Policy = number("used_memory"), number("maxmemory"), InfoField(text.String(), "maxmemory_policy")
	s.Clients, s.ClientLimit = number("connected_clients"), number("maxclients")
	switch on := InfoField(text.String(), "aof_enabled"); on {
	case "0", "1":
		logged := on == "1"
		s.AppendOnly = &logged
	}
	switch {
	case InfoField(text.String(), "aof_last_write_status") == "err":
		s.Unsaved = "append only file"
	case InfoField(text.String(), "rdb_last_bgsave_status") == "err":
		s.Unsaved = "snapshot"
	}
	if s.ClientLimit == 0 {
		s.ClientLimit = c.clientLimit(ctx)
	}
	return s, nil
}

// clientLimit asks for maxclients, which INFO does not contain before Redis 7.
func (c *Client) clientLimit(ctx context.Context) int64 {
	// A cluster has a limit per node.
	if _, cluster := c.Read.(*redis.ClusterClient); cluster {
		return 0
	}
	values, err := c.Read.ConfigGet(ctx, "maxclients").Result()
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(values["maxclients"], 10, 64)
	return n
}
