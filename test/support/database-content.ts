import { createHash } from 'node:crypto'
import { withClient } from './server.ts'

/** Every table's rows as one hash, but for those of processes and numbers of transactions. */
export async function contentOf(url: string): Promise<Record<string, string>> {
  return withClient(url, async (client) => {
    await client.query(`set search_path = ''; set timezone = 'UTC'`)
    const { rows } =
      await client.query(`select c.oid::regclass::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'm') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema' order by 1`)
    const hashes: Record<string, string> = {}
    for (const { name } of rows) {
      if (/svc_(Lease|WriteMark|RateLimit|Hold|FileRemoval)|svc_log\.(consumer|floor|seal_state|lineage)/.test(name))
        continue
      const found = await client.query(`select to_jsonb(t) - 'xid' - 'horizon' as row from ${name} t`)
      const lines = found.rows.map(({ row }) => JSON.stringify(row)).sort()
      hashes[name] = `${lines.length} ${createHash('sha256').update(lines.join('\n')).digest('hex')}`
    }
    return hashes
  })
}
