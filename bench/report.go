package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type report struct {
	Machine   map[string]string `json:"machine"`
	Rounds    int               `json:"rounds"`
	Short     bool              `json:"short"`
	Took      string            `json:"took"`
	Results   []*result         `json:"results"`
	Skipped   []skipped         `json:"skipped"`
	scenarios []scenario
	peers     []*peer
}

type skipped struct {
	Scenario string `json:"scenario"`
	Peer     string `json:"peer"`
	Why      string `json:"why"`
}

func newReport(ctx context.Context, o *options) *report {
	return &report{Machine: machine(ctx), Rounds: o.rounds, Short: o.short, scenarios: o.scenarios, peers: o.peers}
}

func (r *report) skip(s *scenario, p *peer, why string) {
	r.Skipped = append(r.Skipped, skipped{s.Name, p.name, why})
}

// forget removes the results of a peer that failed later.
func (r *report) forget(s *scenario, p *peer) {
	r.Results = slices.DeleteFunc(r.Results, func(m *result) bool { return m.Scenario == s.Name && m.Peer == p.name })
}

func (r *report) of(scenario, peer string) []*result {
	var all []*result
	for _, m := range r.Results {
		if m.Scenario == scenario && m.Peer == peer {
			all = append(all, m)
		}
	}
	return all
}

func (r *report) spread(scenario, peer string, figure func(*result) float64) spread {
	var values []float64
	for _, m := range r.of(scenario, peer) {
		values = append(values, figure(m))
	}
	return spreadOf(values)
}

// ratio compares two measurements of the same rounds, in which the machine was equally fast.
func (r *report) ratio(scenario, peer, otherScenario, otherPeer string, figure func(*result) float64) spread {
	var values []float64
	for _, m := range r.of(scenario, peer) {
		for _, n := range r.of(otherScenario, otherPeer) {
			if m.Round == n.Round && figure(n) != 0 {
				values = append(values, figure(m)/figure(n))
			}
		}
	}
	return spreadOf(values)
}

func rate(m *result) float64      { return m.Rate }
func serverCPU(m *result) float64 { return m.ServerCPU }
func workerCPU(m *result) float64 { return m.WorkerCPU }

func (r *report) pooled(scenario, peer string) []float64 {
	var all []float64
	for _, m := range r.of(scenario, peer) {
		all = append(all, m.Latencies...)
	}
	return all
}

func (r *report) line(s *scenario) string {
	var parts []string
	for _, p := range r.peers {
		if len(r.of(s.Name, p.name)) == 0 {
			continue
		}
		switch s.Kind {
		case kindLatency:
			parts = append(parts, fmt.Sprintf("%s %s ms", p.name, human(quantile(r.pooled(s.Name, p.name), 0.5))))
		case kindIdle, kindFleet:
			parts = append(parts, fmt.Sprintf("%s %s/s", p.name, human(r.spread(s.Name, p.name, func(m *result) float64 { return m.Commands }).Median)))
		default:
			parts = append(parts, fmt.Sprintf("%s %s", p.name, human(r.spread(s.Name, p.name, rate).Median)))
		}
	}
	return strings.Join(parts, " · ")
}

func (r *report) write(dir string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), text, 0o644); err != nil {
		return err
	}
	markdown := r.markdown()
	fmt.Print(markdown)
	return os.WriteFile(filepath.Join(dir, "results.md"), []byte(markdown), 0o644)
}
