// Package local is the CSI driver csi.local.tak-os.org: volumes that are folders of
// one node (contract E1), and their publication to a consumer on that node (E2).
//
// # What it owns
//
// Everything below its root, which one process at a time has:
//
//	lock               taken by the process
//	records/ID         one record a volume
//	volumes/ID/        the volume's files
//	trash/             deleted volumes on their way out
//
// and what is mounted at consumer-mount-root/ID.
//
// ID is the volume's handle: the name that CreateVolume was given if it is a
// DNS-1123 subdomain of at most 128 bytes, else "volume-" and a hash of it.
//
// # What it does not own
//
// Space: the requested size is recorded and compared with what is free when a
// volume is created, and neither reserved nor enforced. Kubernetes' objects: each
// node's own external-provisioner (--node-deployment) speaks to this node's
// driver.
//
// # Records
//
// A JSON object with version 1, whose unknown members are refused, as a record that
// isn't understood must not be acted on:
//
//	{"version":1,"id":"pvc-…","name":"pvc-…","capacityBytes":0,"created":"RFC 3339",
//	 "deleting":false,"acquiredBy":"","acquired":"RFC 3339"}
//
// # Invariants
//
//   - A volume's folder is made before its record, so that a record without a
//     folder means that files were lost: such a volume is never made anew, and
//     every use of it is refused.
//   - An acquisition is recorded before it is mounted, and unmounted before its
//     record goes. While it is recorded the volume is published to nobody else and
//     not deleted.
//   - A volume is acquired only when it is mounted nowhere, and deleted only when it
//     is mounted nowhere and not acquired. What of the machine's mounts can be seen is
//     said in csi/mounts.
//   - A deletion is recorded before the folder moves to the trash, and the record
//     goes after.
//   - One call at a time works on a volume.
//
// # What a crash does
//
// [Driver.Recover] finishes deletions and makes the mounts of acquisitions again,
// also after the machine restarted. A folder without a record is a creation that
// was cut off: the same creation takes it over if it is empty.
package local
