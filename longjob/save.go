package longjob

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/longstore"
)

const (
	maxText = 8 << 10
	// maxSteps is how many steps are shown: the last ones.
	maxSteps = 50
)

// save writes the changes since the last save. Saves are serialized by r.saving.
func (r *Runner) save(ctx context.Context, op longstore.Op, failure string, wait time.Duration) error {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	save := longstore.Save{
		Slice: r.slice, Op: op, Class: r.class, Queue: r.o.RequeueQueue, Wait: wait, Keep: r.o.Keep,
		Further: newUUID(), Progress: r.progress || op == longstore.Yields && r.tried > 0, Fields: r.fields(op, failure), Set: map[string]string{},
	}
	dirty := maps.Clone(r.dirty)
	for key := range dirty {
		if value, ok := r.state[key]; ok {
			save.Set[key] = value
		} else {
			save.Clear = append(save.Clear, key)
		}
	}
	slices.Sort(save.Clear)
	clear(r.dirty)
	progress := r.progress
	r.progress, r.news = false, false
	r.mu.Unlock()

	saved, err := r.store.Save(ctx, save)
	if err == nil {
		if saved.Paused {
			r.pause()
		}
		r.mu.Lock()
		r.savedAt = time.Now()
		r.mu.Unlock()
		return nil
	}
	r.mu.Lock()
	maps.Copy(r.dirty, dirty)
	r.progress = r.progress || progress
	r.mu.Unlock()
	switch {
	case errors.Is(err, longstore.ErrOver), errors.Is(err, longstore.ErrGone):
		r.stop(ErrCancelled)
		return ErrCancelled
	case errors.Is(err, longstore.ErrSuperseded):
		r.stop(ErrTakenOver)
		return ErrTakenOver
	}
	return err
}

// commit saves, and repeats that until it succeeds: completed work must not be done again.
func (r *Runner) commit(ctx context.Context) error {
	r.mu.Lock()
	fresh := r.o.SaveEvery > 0 && time.Since(r.savedAt) < r.o.SaveEvery
	r.mu.Unlock()
	if fresh {
		return nil
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := r.save(context.WithoutCancel(ctx), longstore.GoesOn, "", 0)
		if err == nil || !passing(err) || errors.Is(err, ErrCancelled) || errors.Is(err, ErrTakenOver) {
			return err
		}
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// fields returns the fields of the run that a save writes. r.mu must be held.
func (r *Runner) fields(op longstore.Op, failure string) map[string]string {
	r.tick()
	if op == longstore.Completed && r.touched != nil {
		// The program completed without this step, so an older version of it had begun the
		// step.
		r.steps = slices.DeleteFunc(r.steps, func(st Step) bool { return !st.Finished && !r.touched[st.Name] })
	}
	f := map[string]string{
		"ran":      strconv.FormatInt((r.ranBefore + time.Since(r.began)).Milliseconds(), 10),
		"units":    strconv.FormatInt(r.units, 10),
		"unit_ms":  strconv.FormatInt(r.unitTime.Milliseconds(), 10),
		"message":  r.message,
		"failures": strconv.Itoa(r.failures),
	}
	if failure != "" {
		f["error"] = cut(failure)
	}
	if r.warning != "" {
		f["warning"] = r.warning
	}
	if text, err := json.Marshal(r.steps[max(0, len(r.steps)-maxSteps):]); err == nil && (len(r.steps) > 0 || op == longstore.Completed) {
		f["steps"] = string(text)
	}
	return f
}

func cut(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}

func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
