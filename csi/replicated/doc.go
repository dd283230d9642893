// Package replicated answers the CSI services of csi.replicated.tak-os.org.
//
// # What it owns
//
// What a request may say, the refusal of everything else with a message that
// names the offender, and the translation between CSI's terms and the driver's.
// [Controller] provisions and destroys; it asks [Volumes] for that. [Identity]
// names the driver.
//
// # What it does not own
//
// Kubernetes, replicas and mounts: interfaces that this package declares stand for
// them. It keeps nothing: every call can be repeated.
//
// # Invariants
//
//   - No parameter, capability or option is ignored. What is not known is an
//     InvalidArgument.
//   - As long as anything may exist for a volume that is being made, the answer
//     is a code after which external-provisioner asks again (Aborted,
//     Unavailable), never one after which it forgets the volume.
package replicated
