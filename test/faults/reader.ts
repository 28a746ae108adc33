import type { Web } from '../support/cluster.ts'

/** The token of a new user whose role has this one permission. */
export async function makeReader(web: Web, permission: object): Promise<string> {
  const make = async (path: string, body: object) => {
    const { status, text, body: made } = await web.call('POST', path, body)
    if (status >= 300) throw new Error(`${path}: ${text}`)
    return made
  }
  const credentials = { email: 'reader@example.com', password: 'password of a reader' }
  const role = await make('/items/svc_Role', { name: 'reader' })
  await make('/permissions', { role_Id: role.data.id, ...permission })
  const user = { firstName: 'R', lastName: 'R', emailVerified: true, ...credentials }
  const { data } = await make('/items/svc_User', user)
  await make('/items/svc_UserRole', { user_Id: data.id, role_Id: role.data.id })
  return (await make('/auth/login', credentials)).token
}
