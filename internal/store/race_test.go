//go:build race

package store_test

// raced: with the race detector, pools drop things at random.
const raced = true
