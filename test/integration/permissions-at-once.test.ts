import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { formOf } from '../support/upload.ts'

/**
 * Changes of rights and settings count when they are answered, whichever request makes them (docs/permissions.md). Each is
 * made often: it is told to all processes by NOTIFY too, which arrives before the next request now and then.
 */

const often = 8

let api: Api
let user: { call: Call; roleId: string }

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { title: { type: 'String' } } } })
  user = await api.user()
})

const read = async () => (await user.call('GET', '/items/note')).status
const permission = (more: object = {}) => ({ role_Id: user.roleId, collection: 'note', action: 'read', ...more })

/** Makes the change and answers what the next read is answered with. */
async function readAfter(method: string, path: string, body?: unknown): Promise<number> {
  const { status, text } = await api.admin(method, path, body)
  if (status >= 300) throw new Error(`${method} ${path}: ${text}`)
  return read()
}

async function send(path: string, name: string, content: unknown): Promise<void> {
  const { type, payload } = await formOf([
    { name, filename: 'x.json', type: 'application/json', content: JSON.stringify(content) },
  ])
  const { status, text } = await api.admin('POST', path, payload, { 'content-type': type })
  expect(status, text).toBe(200)
}

const grant = async () => (await api.admin('POST', '/items/svc_Permission', permission())).body.data.id

describe('the next read follows', () => {
  it('a permission that is created, changed and deleted as an item', async () => {
    const answers: number[][] = []
    for (let time = 0; time < often; time += 1) {
      const id = await grant()
      answers.push([
        await read(),
        await readAfter('PATCH', `/items/svc_Permission/${id}`, { action: 'delete' }),
        await readAfter('PATCH', `/items/svc_Permission/${id}`, { action: 'read' }),
        await readAfter('DELETE', `/items/svc_Permission/${id}`),
      ])
    }
    expect(answers).toEqual(Array.from({ length: often }, () => [200, 403, 200, 403]))
  })

  it('permissions that are created and deleted in bulk', async () => {
    const answers: number[][] = []
    for (let time = 0; time < often; time += 1) {
      const created = await readAfter('POST', '/items/svc_Permission/bulk', [
        permission(),
        permission({ action: 'update' }),
      ])
      const ids = await api.sql('select id from "svc_Permission" where "role_Id" = $1', [user.roleId])
      answers.push([
        created,
        await readAfter(
          'DELETE',
          '/items/svc_Permission/bulk',
          ids.map(({ id }) => id),
        ),
      ])
    }
    expect(answers).toEqual(Array.from({ length: often }, () => [200, 403]))
  })

  it('an import of items, and of permissions', async () => {
    const answers: number[][] = []
    const [{ name }] = await api.sql('select name from "svc_Role" where id = $1', [user.roleId])
    for (let time = 0; time < often; time += 1) {
      await send('/items/svc_Permission/import-json', 'jsonFile', [permission()])
      const byItems = await read()
      await send('/permissions-import', 'rolesPermissions', { version: '1.0', roles: [{ name, permissions: [] }] })
      answers.push([byItems, await read()])
    }
    expect(answers).toEqual(Array.from({ length: often }, () => [200, 403]))
  })

  it('a named rule that is changed', async () => {
    const answers: number[][] = []
    await api.admin('POST', '/items/note', { title: 'a' })
    const rule = (await api.admin('POST', '/items/svc_ACL', { name: 'titles', fields: ['*'] })).body.data.id
    const { id } = (await api.admin('POST', '/permissions', permission({ acl_Ids: [rule] }))).body
    const seen = async () => (await user.call('GET', '/items/note')).body.totalCount
    for (let time = 0; time < often; time += 1) {
      await api.admin('PATCH', `/items/svc_ACL/${rule}`, { conditions: { title: 'b' } })
      const few = await seen()
      await api.admin('PATCH', `/items/svc_ACL/${rule}`, { conditions: null })
      answers.push([few, await seen()])
    }
    await api.admin('DELETE', `/permissions/${id}`)
    expect(answers).toEqual(Array.from({ length: often }, () => [0, 1]))
  })

  it('an undone deletion', async () => {
    const answers: number[][] = []
    for (let time = 0; time < often; time += 1) {
      const id = await grant()
      const { headers } = await api.admin('DELETE', `/items/svc_Permission/${id}`)
      const undone = await api.admin('POST', '/log/undo', { requestId: headers['x-request-id'] })
      expect(undone.status, undone.text).toBe(200)
      answers.push([await read(), await readAfter('DELETE', `/items/svc_Permission/${id}`)])
    }
    expect(answers).toEqual(Array.from({ length: often }, () => [200, 403]))
  })
})

describe('GET /settings', () => {
  it('follows a row of svc_Settings that is changed as an item', async () => {
    const names = Array.from({ length: often }, (_, time) => `Project ${time}`)
    const answers: string[] = []
    for (const name of names) {
      const { status, text } = await api.admin('PATCH', '/items/svc_Settings/1', { project_name: name })
      expect(status, text).toBe(200)
      answers.push((await api.anonymous('GET', '/settings')).body.data.project_name)
    }
    expect(answers).toEqual(names)
  })
})
