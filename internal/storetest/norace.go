//go:build !race

package storetest

// RaceDetector makes scripts no different, and tests of them slow.
const RaceDetector = false
