// Package long runs a dev under a load that changes everything and keeps nothing,
// for as long as it is told, and asks that what the program takes of the machine stays
// flat: memory, goroutines, descriptors, and the disk of journals and files.
//
//	go test ./e2e/long -run TestLong -long.for 2h -timeout 3h -v
//
// It does as many operations as the machine allows, with changing names, sizes and
// mounts; its files together never have more than a few MiB. The first third of the
// samples is for warming up; the medians of the second and the last are compared.
// Without -long.for only the arithmetic is tested.
package long
