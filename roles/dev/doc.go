// Package dev is the role that runs everything on one machine, without
// Kubernetes: the replicas of one volume, and mounts of it.
//
// It owns the folder DIR:
//
//	lock            held while dev runs
//	settings.json   the volume and its number of replicas; see settings.go
//	trust/          the volume's authority (ca/) and everybody's credentials
//	replica-N/      one folder a replica, see roles/worker
//	records/        what the host knows of each replica, see roles/worker/record.go
//	run/dev.json    what runs where at this moment, for ctl; see runtime.go
//	run/*.sock      the mount owners' sockets
//	mnt             where the volume is mounted, unless told otherwise
//
// # Invariants
//
// A replica is initialised only before settings.json says that all of them have
// been; afterwards an empty replica folder is a lost replica.
//
// Mounts are made after the workers serve, and are gone before these end.
//
// # Crashes
//
// Children notice that dev has gone by the end of their standard input, and
// end. What is left of mounts is taken away at the next start.
package dev
