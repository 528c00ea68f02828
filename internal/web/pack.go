package web

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// packFrom is the size from which answers are compressed, fastFrom that from which speed
	// matters more than ratio: lists of a large fleet have megabytes.
	packFrom, fastFrom = 1 << 10, 256 << 10
)

var packers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

var fastPackers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level exists
	return z
}}

// write answers with a body, compressed if the client accepts it.
func write(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	h := w.Header()
	if !slices.ContainsFunc(h.Values("Vary"), func(v string) bool { return strings.Contains(v, "Accept-Encoding") }) {
		h.Add("Vary", "Accept-Encoding")
	}
	if len(body) > packFrom && accepts(r, "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = packed(body)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}

func packed(body []byte) []byte {
	pool := &packers
	if len(body) > fastFrom {
		pool = &fastPackers
	}
	z, _ := pool.Get().(*gzip.Writer)
	defer pool.Put(z)
	var b bytes.Buffer
	z.Reset(&b)
	_, _ = z.Write(body) // a buffer accepts all
	_ = z.Close()
	return b.Bytes()
}

func accepts(r *http.Request, coding string) bool {
	for one := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, parameter, _ := strings.Cut(one, ";")
		if !strings.EqualFold(strings.TrimSpace(name), coding) {
			continue
		}
		text, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameter)), "q=")
		quality, err := strconv.ParseFloat(text, 64)
		return !ok || err != nil || quality > 0
	}
	return false
}
