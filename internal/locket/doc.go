// Package locket decides which jobs exclude each other. A Keyer computes the keys
// of job locks that a Redis script cannot compute (Ruby's inspect, templates,
// functions of the program); taking and releasing those locks is the business of
// the scripts in internal/store. Class locks, which jobs of one class take by
// their arguments, are held and given back here.
package locket
