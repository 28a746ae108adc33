/* Leases (leases.ts). They are held by the connection that listens, which runs these two by itself. */

/** Holds or renews the lease of the process `$1`. */
export const renewLease = `
    insert into "svc_Lease" (id, "seenAt") values ($1, clock_timestamp())
    on conflict (id) do update set "seenAt" = excluded."seenAt"`

/** Gives up the lease of the process `$1`, and forgets those that were never given up. */
export const leaveLease = `
    delete from "svc_Lease" where id = $1 or "seenAt" < clock_timestamp() - interval '1 hour'`
