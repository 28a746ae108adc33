import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'

/** Resolves when no statement of a killed process is still running at the server. */
export async function settled(url: string): Promise<void> {
  const busy = `select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
    and backend_type = 'client backend' and xact_start is not null and backend_xid is not null`
  await waitFor(() => withClient(url, async (client) => (await client.query(busy)).rowCount === 0))
}
