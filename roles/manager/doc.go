// Package manager is the role that provisions and destroys volumes, and keeps
// what a volume needs of the cluster as it has to be.
//
// # What it owns
//
// The controller service of csi.replicated.tak-os.org, on a Unix socket of its Pod;
// and the reconciler, which acts in one manager only, chosen by a lease.
//
// CreateVolume places the replicas, writes the ReplicatedVolume and waits;
// DeleteVolume writes that the volume is to be destroyed and waits. All else
// the reconciler does, one volume at a time:
//
//	observe   a few reads: objects of the volume, and its workers' own reports
//	decide    a pure function: what to do next, and what the status is to say
//	act       one idempotent call at a time; the first that fails ends the pass
//
// A pass does all that can be done now; the next begins from what is there then. So it does not matter
// between which two calls a manager ends, and nothing is remembered but in the cluster.
//
// # What it does not own
//
// Data: it neither mounts nor opens anything. Hosts run replicas, acquire
// storage and say when they have let go of it. Who has a volume open is asked
// of the volume's log.
//
// # Invariants
//
//   - The ReplicatedVolume is there before anything else of a volume, and after
//     everything else.
//   - Nothing of a volume is destroyed before its log is sealed by its quorum, unless
//     it was never handed out.
//   - A backing claim's finalizer is removed only after its host has acknowledged the
//     release of exactly that claim, volume, node and life, or its node was deleted
//     from the API.
//   - A replica is placed again only while no host can have touched its claim.
//   - A replica is replaced only because an operator asked for exactly that life of it.
//     The former life takes part until the log has the new one in its place.
//   - What is not known (no answer from the API, no quorum) destroys nothing.
//   - Private keys are in Secrets and in memory, never in logs or Events.
package manager
