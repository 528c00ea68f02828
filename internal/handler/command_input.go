package handler

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/memfile"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

// outputFD is the descriptor for a command's reports.
const outputFD = 3

// environ returns the environment of one run. The job's variables come last, because the last
// one of a name counts.
func (c *command) environ(job *resqued.Job, tag string, s *slice) ([]string, error) {
	own := []string{
		"RESQUED_JOB=" + tag,
		"RESQUED_PROC=" + c.runner.proc,
		"RESQUED_FD=" + strconv.Itoa(outputFD),
		"RESQUED_JOB_ID=" + job.ID,
		"RESQUED_JOB_CLASS=" + job.Class,
		"RESQUED_JOB_QUEUE=" + job.Queue,
		"RESQUED_JOB_ATTEMPT=" + strconv.Itoa(job.Attempt),
	}
	if job.MaxAttempts > 0 {
		own = append(own, "RESQUED_JOB_MAX_ATTEMPTS="+strconv.Itoa(job.MaxAttempts))
	}
	if !job.Deadline.IsZero() {
		own = append(own, "RESQUED_JOB_DEADLINE="+program.Stamp(job.Deadline))
	}
	if job.LockKey != "" {
		own = append(own, "RESQUED_LOCK_KEY="+job.LockKey, "RESQUED_LOCK_FENCE="+strconv.FormatInt(job.Fence(), 10))
	}
	if job.LockSequence != 0 {
		own = append(own, "LOCKER_SEQUENCE="+strconv.FormatInt(job.LockSequence, 10))
	}
	if s != nil {
		own = append(own, s.environ()...)
	}
	for _, variable := range own {
		if name, value, _ := strings.Cut(variable, "="); strings.ContainsRune(value, 0) {
			return nil, &program.StartError{
				Program: c.Argv[0],
				Err:     fmt.Errorf("%s would hold a NUL byte (%s), which no program can be given", name, wire.Printable(value, shownName)),
			}
		}
	}
	return slices.Concat(c.runner.base, c.Env, own), nil
}

// inputFile returns a file in memory with the job as JSON: however large the job is and whether
// or not the program reads it, neither process waits for the other.
func inputFile(job *resqued.Job, s *slice) (*os.File, error) {
	f, err := memfile.New("resqued-job", encodeJob(job, s))
	if err != nil {
		return nil, fmt.Errorf("the job as a file: %w", err)
	}
	return f, nil
}

// encodeJob returns the line for a command's stdin. The arguments keep their original bytes.
func encodeJob(job *resqued.Job, s *slice) []byte {
	b := make([]byte, 0, 256+len(job.Payload))
	b = wire.AppendString(append(b, `{"id":`...), job.ID)
	b = wire.AppendString(append(b, `,"class":`...), job.Class)
	b = append(append(b, `,"args":`...), job.Args.String()...)
	b = wire.AppendString(append(b, `,"queue":`...), job.Queue)
	b = program.AppendAttempt(b, job)
	if s != nil {
		b = append(append(program.AppendSlice(b, s.Slice), `,"state":`...), s.State...)
	}
	return append(b, "}\n"...)
}
