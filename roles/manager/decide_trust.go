package manager

import (
	"context"
	"fmt"
	"strings"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// trust makes the volume's authority and credentials, and renews what is past
// half of its life. It reports whether the volume's other objects may be
// thought of: no claim is made before the authority is there.
func trust(o *observed, s settings, p *plan) bool {
	if o.authority == nil {
		if len(o.trust) > 0 || p.is(api.ConditionProvisioned) {
			p.set(o, api.ConditionTrusted, false, "AuthorityMissing",
				"secret %s/%s with the volume's authority is gone, and is not made anew; credentials can't be renewed. Restore it from a backup", api.CANamespace, api.CASecret(o.v.Name))
			p.tell(o, true, "AuthorityMissing", "the secret with the volume's authority is gone; credentials can't be renewed")
			return true
		}
		p.set(o, api.ConditionTrusted, false, api.ReasonCreatingCredentials, "the volume's authority is being made")
		p.add(func(ctx context.Context, m *manager) error { return m.createAuthority(ctx, o.v) }, "create the authority")
		p.soon(1)
		return false
	}
	var failed []string
	for _, h := range holdings(o.v, s.namespace, s.domain) {
		if err := secretFor(o, p, api.TrustNamespace, o.trust, h); err != nil {
			failed = append(failed, err.Error())
		}
		if p.status.Runtime == api.RuntimePod && h.index != 0 {
			if err := secretFor(o, p, s.namespace, o.local, h); err != nil {
				failed = append(failed, err.Error())
			}
		}
	}
	if len(failed) > 0 {
		p.set(o, api.ConditionTrusted, false, api.ReasonRenewFailed, "%s", strings.Join(failed, "; "))
		p.tell(o, true, api.ReasonRenewFailed, "credentials can't be renewed: %s", failed[0])
		return true
	}
	p.set(o, api.ConditionTrusted, true, api.ReasonRenewed, "credentials are valid and renewed at half of their life")
	return true
}

// secretFor makes or renews one Secret.
func secretFor(o *observed, p *plan, namespace string, have map[string]kube.Secret, h holding) error {
	secret, exists := have[h.secret]
	data, wrote, err := renewed(secret.Data, o.authority.Data, h, o.now)
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", namespace, h.secret, err)
	}
	if !wrote {
		return nil
	}
	secret.Namespace, secret.Name, secret.Data, secret.Labels = namespace, h.secret, data, api.Labels(o.v.Name, h.index)
	if exists {
		p.add(func(ctx context.Context, m *manager) error { return m.kube.UpdateSecret(ctx, secret) }, "renew secret %s/%s", namespace, h.secret)
	} else {
		p.add(func(ctx context.Context, m *manager) error { return m.kube.CreateSecret(ctx, secret) }, "create secret %s/%s", namespace, h.secret)
	}
	return nil
}
