package config

import "strings"

// nearest returns what was most likely meant by name: what synonyms say, else the closest
// candidate, else "". It ignores dashes and case.
func nearest(name string, candidates []string, synonyms ...map[string]string) string {
	plain := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	for _, s := range synonyms {
		if meant := s[plain]; meant != "" {
			return meant
		}
	}
	if len(plain) > maxValue {
		return ""
	}
	best, least := "", 1+min(len(plain)/2, 3)
	for _, c := range candidates {
		if len(plain) >= 4 && strings.HasPrefix(c, plain) {
			return c
		}
		if d := Distance(plain, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Distance is the number of letters to insert, delete, change or swap to get from a to b.
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
