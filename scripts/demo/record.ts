import assert from 'node:assert/strict'
import { type Call, expectStatus } from '../http.ts'
import { type Country, countryRows } from './countries.ts'
import { type List, list } from './lists.ts'
import type { Stage } from './stage.ts'
import type { See } from './steps.ts'

type AuditRow = { action: string; userId: string | null; changes: { before: Country | null; after: Country | null } }

export async function readHistory(admin: Call, see: See): Promise<void> {
  const filter = { entity: 'country', entityId: 'PT' }
  const path = list('svc_AuditLog', { filter, fields: ['action', 'userId', 'changes'], sort: 'id', limit: -1 })
  const { data } = expectStatus(await admin<List<AuditRow>>('GET', path), 200)
  const { id } = expectStatus(await admin<{ user: { id: string } }>('GET', '/auth/me'), 200).user
  assert.equal(data[0]?.action, 'create')
  assert.equal(data[0]?.userId, id)
  assert.equal(data.at(-1)?.userId, null)
  assert.match(data.at(-1)?.changes.after?.capital ?? '', /\(by hand\)$/)
  for (const { action, userId, changes } of data)
    see(`${action} PT by ${userId === id ? 'the administrator' : 'psql'}: capital ${changes.after?.capital}`)
}

export async function verifyLog(stage: Stage, see: See): Promise<void> {
  const { code, output } = await stage.run('scripts/log-verify.ts')
  assert.equal(code, 0, output)
  const [header, ...lines] = output.trim().split('\n')
  const mentioned = lines.filter((line) => /^(continent|country|svc_User) /.test(line))
  assert.equal(mentioned.length, 3, output)
  assert.match(
    lines.find((line) => line.startsWith('country '))!,
    new RegExp(`^country +${countryRows.length} +${countryRows.length} +0 +0 +0$`),
  )
  for (const line of [header!, ...mentioned]) see(line)
}

export async function stopAll({ web, mailWorker }: Stage, see: See): Promise<void> {
  for (const part of [web, mailWorker]) {
    const code = await part.stop()
    assert.equal(code, 0, `${part.name} ended with ${code}`)
    see(`${part.name}: exit code 0`)
  }
}
