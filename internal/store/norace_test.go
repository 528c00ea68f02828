//go:build !race

package store_test

// raceDetector makes scripts no different, and tests of them slow.
const raceDetector = false
