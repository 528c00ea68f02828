package rdb

import (
	"context"
	"strconv"
	"strings"
	"time"
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

// Info asks the server of the namespace for sections of INFO. It only fails if the server does not answer.
func (c *Client) Info(ctx context.Context, sections ...string) (string, error) {
	node, err := c.Node(ctx)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, section := range sections {
		part, err := node.Info(ctx, section).Result()
		if err != nil && Unreachable(err) {
			return "", err
		}
		text.WriteString(part + "\n")
	}
	return text.String(), nil
}

// Server asks the server of the namespace about itself. It only fails if the server does not answer.
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
	text, err := c.Info(ctx, "server", "replication", "memory", "clients", "persistence")
	if err != nil {
		return s, err
	}
	field := func(name string) string { return InfoField(text, name) }
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(field(name), 10, 64)
		return n
	}
	s.Version, s.Role = field("redis_version"), field("role")
	s.Memory, s.MemoryLimit, s.Policy = number("used_memory"), number("maxmemory"), field("maxmemory_policy")
	s.Clients, s.ClientLimit = number("connected_clients"), number("maxclients")
	switch on := field("aof_enabled"); on {
	case "0", "1":
		logged := on == "1"
		s.AppendOnly = &logged
	}
	switch {
	case field("aof_last_write_status") == "err":
		s.Unsaved = "append only file"
	case field("rdb_last_bgsave_status") == "err":
		s.Unsaved = "snapshot"
	}
	if node, err := c.Node(ctx); err == nil && s.ClientLimit == 0 { // INFO does not contain it before Redis 7
		s.ClientLimit, _ = strconv.ParseInt(node.ConfigGet(ctx, "maxclients").Val()["maxclients"], 10, 64)
	}
	return s, nil
}
