import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { expect, inject, it } from 'vitest'
import { dropDatabase } from '../../scripts/drop-database.ts'
import { withClient } from '../support/server.ts'

it('drops a database in which a session still reads the WAL', async () => {
  const { url, prefix } = inject('server')
  const name = `${prefix}${randomBytes(5).toString('hex')}`
  await withClient(url, async (server) => {
    await server.query(`create database ${name}`)
    const reader = new pg.Client({ connectionString: Object.assign(new URL(url), { pathname: `/${name}` }).href })
    reader.on('error', () => undefined)
    const ended = new Promise((resolve) => reader.once('end', resolve))
    await reader.connect()
    await reader.query(`select pg_create_logical_replication_slot($1, 'pgoutput', true)`, [`reads_${name}`])
    await dropDatabase(url, name)
    expect((await server.query('select from pg_database where datname = $1', [name])).rowCount).toBe(0)
    await ended
  })
})
