import { describe, expect, it } from 'vitest'
import type { Selection } from '../../../src/query/plan.ts'
import { role } from './support/access.ts'
import { listOf, planOf, refusal } from './support/compiled.ts'

type Shape = (string | Record<string, Shape>)[]

const shapeOf = ({ columns, nested }: Selection): Shape => [
  ...columns.map(({ name }) => name),
  ...nested.map(({ step, selection }) => ({ [step.relation.name]: shapeOf(selection) })),
]
const shape = (fields: string[], collection = 'comments') =>
  shapeOf(planOf({ collection, query: { fields } }).selection)

const OWN = ['id', 'text', 'likes', 'at', 'note_Id', 'author_Id', 'deletedAt']
const USER = ['id', 'name', 'email', 'age', 'team_Id']
const TEAM = ['id', 'name']

describe('fields', () => {
  it.each([
    [[], OWN],
    [['*'], OWN],
    [
      ['text', 'id'],
      ['text', 'id'],
    ],
    [['text'], ['text']],
    [['author'], [{ author: USER }]],
    [['author.*'], [{ author: USER }]],
    [['author.name'], [{ author: ['id', 'name'] }]],
    [['author.team.name', 'author.age'], [{ author: ['id', 'age', { team: TEAM }] }]],
    [
      ['*', '-text', '-at'],
      ['id', 'likes', 'note_Id', 'author_Id', 'deletedAt'],
    ],
    [['-text'], OWN.filter((name) => name !== 'text')],
    [['author.*', '-author.email', '-author.id'], [{ author: ['id', 'name', 'age', 'team_Id'] }]],
    [
      ['*', 'author.team.name', '-author.team'],
      [...OWN, { author: ['id'] }],
    ],
  ])('%j', (fields, expected) => {
    expect(shape(fields)).toEqual(expected)
  })

  it('*.* takes the columns of every first-level relation', () => {
    const [note, author] = shape(['*.*']).slice(OWN.length) as [Record<string, Shape>, Record<string, Shape>]
    expect(note.note!.filter((entry) => typeof entry === 'object')).toEqual([])
    expect(author).toEqual({ author: USER })
    const deep = shape(['author.*.*']) as [{ author: Shape }]
    expect(deep[0].author.slice(0, USER.length)).toEqual(USER)
    expect(deep[0].author).toContainEqual({ team: TEAM })
  })

  it('never takes hidden columns, not even for administrators', () => {
    expect(JSON.stringify(shape(['*.*.*'], 'users'))).not.toMatch(/password|secret/)
    for (const fields of [['password'], ['team.members.password']]) {
      expect(refusal(() => planOf({ collection: 'users', query: { fields } }))).toMatchObject({ status: 403 })
    }
  })

  it('ignores aggregate aliases and date buckets', () => {
    expect(shape(['id', 'date:year:at'])).toEqual(['id'])
  })

  it.each([
    [['nope']],
    [['**']],
    [['*.name']],
    [['text.x']],
    [['author.nope']],
    [['-nope']],
    [['-author.nope']],
    [['id" from svc_User --']],
    [['__proto__']],
    [['constructor']],
    [['author.toString']],
  ])('refuses %j', (fields) => {
    expect(refusal(() => shape(fields))).toMatchObject({ status: 400, message: 'Invalid query parameters' })
  })

  it('bounds depth and number of relations', () => {
    const parents = (levels: number) => [`${'parent.'.repeat(levels)}name`]
    expect(shape(parents(7), 'categories')).toHaveLength(1)
    for (const fields of [parents(8), parents(50), ['*.*.*.*.*.*.*.*'], ['*.*.*.*.*.*.*.*.*']]) {
      expect(refusal(() => shape(fields, 'categories'))).toMatchObject({ status: 400 })
    }
  })

  it('restricts many-to-any rows to the collections that are named', () => {
    const only = (fields: string[]) => planOf({ query: { fields } }).selection.nested[0]!.only
    expect(only(['blocks.images.url', 'blocks.quotes.words'])).toEqual({
      column: 'collection',
      values: ['images', 'quotes'],
    })
    for (const field of ['blocks.images.*', 'blocks.images'])
      expect(only([field])).toEqual({ column: 'collection', values: ['images'] })
    expect(only(['blocks.*.*'])).toBeUndefined()
    expect(only(['blocks.*'])).toBeUndefined()
  })
})

describe('links of a many-to-any relation', () => {
  const links = (fields: string[]) => planOf({ query: { fields } }).selection.nested[0]!.selection.columns
  const columns = (fields: string[]) => links(fields).map(({ name }) => name)

  it('say which item they lead to where a collection is named', () => {
    expect(columns(['blocks.images.url'])).toEqual(['id', 'item_id', 'collection'])
    expect(columns(['blocks.images', '-blocks.item_id'])).toEqual(['id', 'collection'])
    expect(columns(['blocks.notes_id'])).toEqual(['id', 'notes_id'])
    expect(shape(['images.url'], 'notes_blocks_junction')).toEqual([{ images: ['id', 'url'] }])
  })

  it('do so only as far as the caller may read them', () => {
    const access = role({ grants: { notes: { fields: ['*', 'blocks.id', 'blocks.images.url'] }, images: {} } })
    const { selection } = planOf({ query: { fields: ['blocks.images.url'] }, access })
    expect(shapeOf(selection)).toEqual([{ blocks: ['id', { images: ['id', 'url'] }] }])
  })
})

describe('relConditions', () => {
  it('filter the rows of their relation at every level', () => {
    const query = {
      fields: ['id', 'comments.text', 'comments.author.name'],
      relConditions: { comments: { OR: [{ likes: 1 }, { likes: 2 }], author: { name: 'Ann' } } },
    }
    const { text, values } = listOf({ query })
    expect(text).toContain('(q1."likes" = $1::integer or q1."likes" = $2::integer)')
    expect(text).toContain('q2."name" = $3::text')
    expect(values).toEqual([1, 2, 'Ann'])
  })

  it('do not filter the parents, nor need their relation to be selected', () => {
    expect(listOf({ query: { fields: ['id'], relConditions: { comments: { likes: 1 } } } }).values).toEqual([])
  })

  it.each([[{ nope: {} }], [{ title: {} }], [{ comments: 1 }], [{ comments: { nope: 1 } }]])(
    'refuse %j',
    (relConditions) => {
      const query = { fields: ['comments.id'], relConditions }
      expect(refusal(() => listOf({ query }))).toMatchObject({ status: 400 })
    },
  )
})
