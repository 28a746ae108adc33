import pino from 'pino'
import { expect, it } from 'vitest'
import { runSetup } from '../../src/setup/setup.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'

it('renames the project with PROJECT_NAME until it has been named', async () => {
  const { url } = await createDatabase()
  const setUp = (name: string) => runSetup(testConfig(url, { PROJECT_NAME: name }), pino({ level: 'fatal' }))
  const query = (text: string) => withClient(url, async (client) => (await client.query(text)).rows)
  const named = () => query('select project_name as name, title from "svc_Settings" where "tenant_Id" is null')

  await setUp('First')
  expect(await named()).toEqual([{ name: 'First', title: 'First' }])
  await query(`update "svc_Settings" set title = 'By hand'`)
  await setUp('Second')
  expect(await named()).toEqual([{ name: 'Second', title: 'By hand' }])
  const events = await query(`select action, "userId" from "svc_AuditLog"
    where entity = 'svc_Settings' and changes->'after'->>'project_name' = 'Second'`)
  expect(events).toEqual([{ action: 'update', userId: null }])

  await query(`update "svc_Settings" set project_name = 'Chosen'`)
  await setUp('Third')
  expect(await named()).toEqual([{ name: 'Chosen', title: 'By hand' }])
})
