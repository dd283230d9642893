// Package kube holds every call to a Kubernetes API server.
//
// # What it owns
//
// [Client]: one small method a kind of call. Objects come back as small structs
// with what the driver looks at ([Claim], [Volume], [Node] …), except the
// driver's own resource, which is package api's type. So what decides about
// objects needs no cluster and no library.
//
// # What it does not own
//
// Decisions. No method makes more than one change; none repeats a change that
// failed. What belongs together is put together by the callers, who have to
// bear that the process ends between any two calls.
//
// # Invariants
//
//   - Names of what is made are chosen by the caller. Making a thing that is
//     there already is an error that [AlreadyExists] knows.
//   - Deletions carry the UID, and where it matters the resource version, of
//     what the caller has looked at; so nothing that came later is deleted.
//   - A host writes only its own fields in a volume's status, by server-side
//     apply. Forced: nobody else has a claim to them.
//   - Secrets' contents are not logged and not part of errors.
//
// # After a crash
//
// Nothing is kept here. Watches begin with a list.
package kube
