/**
 * Makes the collections and roles of the board: `node examples/board/setup.js http://127.0.0.1:8055 admin@example.com PASSWORD`.
 * It may run again: what is there stays.
 */
import { readFile } from 'node:fs/promises'

const [url, email, password] = process.argv.slice(2)
const read = (name) => readFile(new URL(name, import.meta.url), 'utf8')

let token
async function ask(method, path, body) {
  const isForm = body instanceof FormData
  const response = await fetch(url + path, {
    method,
    headers: {
      ...(token && { authorization: `Bearer ${token}` }),
      ...(!isForm && body && { 'content-type': 'application/json' }),
    },
    body: isForm ? body : body && JSON.stringify(body),
  })
  const answer = await response.json()
  if (!response.ok) throw new Error(`${method} ${path}: ${answer.error?.message ?? answer.message}`)
  return answer
}

token = (await ask('POST', '/auth/login', { email, password })).token

const schemas = JSON.parse(await read('schemas.json'))
const there = (await ask('GET', '/schemas?limit=-1')).data.map(({ collectionName }) => collectionName)
for (const schema of schemas) {
  if (there.includes(schema.collectionName)) continue
  await ask('POST', '/schemas', schema)
  process.stdout.write(`made ${schema.collectionName}\n`)
}

const form = new FormData()
form.append(
  'rolesPermissions',
  new Blob([await read('permissions.json')], { type: 'application/json' }),
  'permissions.json',
)
const { changes } = await ask('POST', '/permissions-import', form)
process.stdout.write(`roles and permissions: ${changes.created.length} made, ${changes.updated.length} changed\n`)

const { data: roles } = await ask('GET', '/items/svc_Role?fields=id,name')
const idOf = (name) => roles.find((role) => role.name === name).id
await ask('PATCH', `/items/svc_Role/${idOf('owner')}`, { canInviteRoleIds: ['owner', 'member', 'guest'].map(idOf) })
