package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

type spread struct{ Median, Min, Max float64 }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	return spread{Median: quantile(values, 0.5), Min: slices.Min(values), Max: slices.Max(values)}
}

func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := share * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// human formats a figure with about three digits and separated thousands.
func human(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "–"
	case a >= 1e9:
		return strconv.FormatFloat(v/1e9, 'f', 2, 64) + " G"
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 2, 64) + " M"
	case a >= 1000:
		digits := math.Pow(10, math.Floor(math.Log10(a))-2)
		n := strconv.Itoa(int(math.Round(v/digits) * digits))
		return n[:len(n)-3] + "," + n[len(n)-3:]
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func (s spread) String() string {
	if s.Median == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", human(s.Median), human(s.Min), human(s.Max))
}

func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
