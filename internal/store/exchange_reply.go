package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
)

// The number of parts of a reply before the jobs, on the fast path and otherwise.
const fastHeader, slowHeader = 2, 10

func parseExchange(raw any, order order, wants []Want) (ExchangeReply, error) {
	parts, _ := raw.([]any)
	list := rdb.List(parts)
	if len(list) == 0 {
		return ExchangeReply{}, fmt.Errorf("script exchange: unexpected reply %T", raw)
	}
	if list[0] == "FENCED" {
		return ExchangeReply{}, ErrFenced
	}
	marks, fast := strings.CutPrefix(list.Text(0), "+")
	header := slowHeader
	if fast {
		header = fastHeader
	}
	if len(list) < header || !fast && (len(list)-header)%2 != 0 || fast && len(list)-header > len(wants) {
		return ExchangeReply{}, fmt.Errorf("script exchange: reply of %d parts", len(list))
	}
	reply := ExchangeReply{}
	var reasons, lined []string
	if fast {
		reply.More = list.Number(1) == 1
	} else {
		marks, reasons = list.Text(3), list.Texts(4)
		reply.Bounced, reply.More = int(list.Number(1)), list.Number(2) == 1
		reply.WrongType, reply.OutOfStep = list.Texts(5), list.Texts(6)
		for queue, payload := range list.Pairs(7) {
			reply.Unnamed = append(reply.Unnamed, LockName{Queue: queue, Payload: []byte(payload)})
		}
		reply.Suspects, lined = int(list.Number(8)), list.Texts(9)
	}
	if len(marks) != len(order.indices) {
		return ExchangeReply{}, fmt.Errorf("script exchange: %d answers for %d completions", len(marks), len(order.indices))
	}
	reply.Applied = make([]bool, len(marks))
	for at, i := range order.indices {
		mark := marks[at]
		reply.Applied[i] = mark == '1' || mark == 'u' || mark == 'p'
		if mark == 'u' {
			reply.Duplicates = append(reply.Duplicates, i)
		}
		if mark == 'x' || mark == 'p' {
			if reply.Stuck == nil {
				reply.Stuck, reply.Parked = map[int]string{}, map[int]string{}
			}
			reason := "unknown reason"
			if len(reasons) > 0 {
				reason, reasons = reasons[0], reasons[1:]
			}
			if mark == 'x' {
				reply.Stuck[i] = reason
			} else {
				reply.Parked[i] = reason
			}
		}
	}
	if len(reasons) > 0 {
		reply.Unlockable = reasons[0]
	}
	step := 2
	if fast {
		step = 1
	}
	reply.Jobs = make([]Reserved, 0, (len(list)-header)/step)
	for i := header; i < len(list); i += step {
		token := list.Text(i)
		if fast {
			token = wants[i-header].Token
		}
		job, err := ParseRecord(token, list.Text(i+step-1))
		if err != nil {
			return ExchangeReply{}, err
		}
		job.Lined, job.Passed = fast && list.Number(1) == 2 || slices.Contains(lined, token), passed(lined, token)
		reply.Jobs = append(reply.Jobs, job)
	}
	return reply, nil
}

// passed returns the line of a limit in which a job has waited, or "".
func passed(lined []string, token string) string {
	for _, entry := range lined {
		if line, ok := strings.CutPrefix(entry, "+"+token+" "); ok {
			return line
		}
	}
	return ""
}
