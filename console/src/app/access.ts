import type { Description, Shape } from './definition.ts'

/** The rights of a user on the rows of a collection; create and update are undefined where the user has none. */
export type Access = {
  readonly reads: (field: string) => boolean
  /** Fields of the rows that a relation leads to. */
  readonly readsThrough: (relation: string, field: string) => boolean
  readonly creates: ((field: string) => boolean) | undefined
  readonly updates: ((field: string) => boolean) | undefined
  readonly deletes: boolean
}

/** The grants of a role, as `/auth/me` gives them. */
type Grant = { readonly collection: string; readonly action: string; readonly fields: readonly string[] | null }

const always = () => true

export const everything: Access = {
  reads: always,
  readsThrough: always,
  creates: always,
  updates: always,
  deletes: true,
}

/** As the server describes it to the caller. Undefined where it describes no such rows to them. */
export function describedAccess({ paths, components }: Description, collection: string): Access | undefined {
  const list = paths[`/items/${collection}`]
  const one = paths[`/items/${collection}/{id}`] ?? {}
  if (list === undefined) return undefined
  const properties = (name: string) => components.schemas[name]?.properties
  const writes = (name: string) => {
    const named = properties(name)
    return named === undefined ? always : (field: string) => field in named
  }
  const row = properties(collection)
  return {
    reads: (field) => row === undefined || field in row,
    readsThrough: (relation, field) =>
      row === undefined || field in (rowShape(row[relation], components.schemas)?.properties ?? {}),
    creates: 'post' in list ? writes(`${collection}.new`) : undefined,
    updates: 'patch' in one ? writes(`${collection}.change`) : undefined,
    deletes: 'delete' in one,
  }
}

/** By the grants of a role, where the server describes nothing: fields that are granted by name are known, the others may be open. */
export function grantedAccess(permissions: readonly Grant[], collection: string): Access | undefined {
  const grant = (action: string) => permissions.find((one) => one.collection === collection && one.action === action)
  const fieldsOf = (action: string): ((field: string) => boolean) | undefined => {
    const granted = grant(action)
    if (granted === undefined) return undefined
    const names = granted.fields ?? []
    const isOpen = names.some((name) => name === '*' || name === '*.*') || names.every((name) => name.startsWith('-'))
    return (field) => !names.includes(`-${field}`) && (names.includes(field) || isOpen)
  }
  const reads = fieldsOf('read')
  if (reads === undefined) return undefined
  return {
    reads,
    readsThrough: (relation, field) =>
      (grant('read')?.fields ?? []).some((name) => name === `${relation}.*` || name === `${relation}.${field}`),
    creates: fieldsOf('create'),
    updates: fieldsOf('update'),
    deletes: grant('delete') !== undefined,
  }
}

/** One row of what a relation gives: a list, a row or none, or a reference to it. */
export function rowShape(shape: Shape | undefined, schemas: Description['components']['schemas']): Shape | undefined {
  if (shape?.items !== undefined) return rowShape(shape.items, schemas)
  if (shape?.anyOf !== undefined) return rowShape(shape.anyOf[0], schemas)
  return shape?.$ref === undefined ? shape : schemas[shape.$ref.split('/').at(-1)!]
}
