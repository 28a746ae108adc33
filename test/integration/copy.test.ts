import pg from 'pg'
import { expect, it } from 'vitest'
import { copyOut } from '../../src/db/copy.ts'
import { createEmptyDatabase } from '../support/postgres.ts'

it('rows whose connection ends are an error for who reads them, and none for a process that does not', async () => {
  const { url } = await createEmptyDatabase()
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => undefined)
  await client.connect()
  const rows = copyOut(client as never, 'copy (select generate_series(1, 3000000)) to stdout')
  const closed = new Promise<void>((resolve) => void rows.once('close', resolve))
  const { stream } = (client as unknown as { connection: { stream: { destroy(): void } } }).connection
  stream.destroy()
  await closed
  expect(rows.errored).toMatchObject({ message: expect.stringContaining('Connection terminated') })
  await expect(rows.toArray()).rejects.toThrow('Connection terminated')
})
