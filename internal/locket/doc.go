// Package locket takes the class locks of jobs, which jobs of one class take by their
// arguments: they are held and given back here. The keys of job locks are the business of
// package jobkey, taking and releasing those of the scripts in internal/store.
package locket
