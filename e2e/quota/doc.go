// Package quota fills a volume whose size is enforced, through real mounts: to the
// block, from several mounts at the same time, with holes, hard links and files
// that have no name any more, and with replicas that begin anew (CONTRACT A7).
package quota
