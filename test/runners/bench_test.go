//go:build linux

package runners_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
)

// BenchmarkRunners measures jobs that do nothing: in one runner and in two, each with one job at
// a time, and in one with four.
func BenchmarkRunners(b *testing.B) {
	for _, s := range shims {
		for _, runners := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/runners=%d", s.name, runners), func(b *testing.B) { s.bench(b, runners, 1) })
		}
		b.Run(s.name+"/concurrency=4", func(b *testing.B) { s.bench(b, 1, 4) })
		b.Run(s.name+"/concurrency=10", func(b *testing.B) { s.bench(b, 1, 10) })
	}
}

func (s shim) bench(b *testing.B, runners, concurrency int) {
	all := make([]*runner, runners)
	for i := range all {
		all[i] = s.direct(b, concurrency)
	}
	b.ResetTimer()
	var working sync.WaitGroup
	for i, r := range all {
		jobs := b.N / runners
		if i == 0 {
			jobs = b.N - jobs*(runners-1)
		}
		working.Go(func() { r.benchNop(b, jobs, concurrency) })
	}
	working.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// benchNop performs some jobs at a time, and writes their lines without the checks of a test.
func (r *runner) benchNop(b *testing.B, jobs, concurrency int) {
	line := make([]byte, 0, 512)
	sent := 0
	send := func() {
		sent++
		line = fmt.Appendf(line[:0], `{"job":{"number":%d,"id":"0e4c2b3b-3df1-4d0c-a3c4-%d","class":"Nop","queue":"mail","attempt":1,`+
			`"max_attempts":null,"enqueued_at":null,"deadline":null,"deaths":0,"worker":"host:4711-1:mail",`+
			`"payload":{"class":"Nop","args":[42,"hello"]}}}`+"\n", sent, sent)
		if _, err := r.conn.Write(line); err != nil {
			b.Error(err)
		}
	}
	for sent < min(concurrency, jobs) {
		send()
	}
	for range jobs {
		answer, err := r.lines.ReadSlice('\n')
		if err != nil || !bytes.HasPrefix(answer, []byte(`{"done":`)) {
			b.Errorf("%s %v", answer, err)
			return
		}
		if sent < jobs {
			send()
		}
	}
}
