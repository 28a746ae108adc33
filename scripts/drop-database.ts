import pg from 'pg'

/**
 * Drops a database with whatever is connected to it; `serverUrl` is the address of another one. `with (force)` alone is
 * refused while a session reads the WAL, and that of a killed process lives until it notices.
 */
export async function dropDatabase(serverUrl: string, name: string): Promise<void> {
  const server = new pg.Client({ connectionString: serverUrl })
  await server.connect()
  try {
    await server.query(endSessions, [name, longestMs])
    await server.query(`drop database ${name} with (force)`)
  } finally {
    await server.end()
  }
}

const longestMs = 5000
/** Our own: those of the server are for superusers to end, and no obstacle. */
const endSessions = `
  select pg_terminate_backend(pid, $2) from pg_stat_activity where datname = $1 and usename = current_user`
