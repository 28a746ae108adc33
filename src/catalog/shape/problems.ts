import { Check } from 'typebox/value'
import { nearName, plain } from '../../near-names.ts'
import { fieldTypes } from '../field-types.ts'
import { relationshipTypeOf, relationWordFor, relTypes } from './relation-types.ts'
import { membersOf, type ShapeName } from './shape.ts'
import { synonymOf, typeSynonymOf } from './synonyms.ts'

/** Something in a definition that is not as it must be, and where. */
export type Problem = { readonly path: string; readonly message: string }

type Json = Readonly<Record<string, unknown>>

/** Members that none of the shapes has, and values that no such member can have. The first shape names what is meant. */
export function memberProblems(names: readonly ShapeName[], json: Json, path: string): Problem[] {
  return Object.entries(json).flatMap(([word, value]): Problem[] => {
    const at = path === '' ? word : `${path}.${word}`
    const shape = names.find((name) => Object.hasOwn(membersOf(name), word))
    if (shape === undefined) return [{ path: at, message: unknownMember(names, word, value) }]
    const member = membersOf(shape)[word]!
    if (member.expects === undefined || Check(member, value)) return []
    return [{ path: at, message: `must be ${member.expects}` }]
  })
}

/** As {@link memberProblems}, for what must be an object. */
export function objectProblems(name: ShapeName, json: unknown, path: string): Problem[] {
  return isObject(json) ? memberProblems([name], json, path) : [{ path, message: 'must be an object' }]
}

/** What is wrong with the word for a column's type; undefined when nothing is. */
export function typeProblem({ type, values, target, foreignKey }: Json): string | undefined {
  if (type === undefined || type === null)
    return target === undefined && foreignKey === undefined
      ? 'is missing, such as "String"'
      : 'is missing: is this a relation? Then it needs relType, such as "BelongsTo"'
  if (typeof type !== 'string') return `unknown type ${JSON.stringify(type)}: a type is a word such as "String"`
  if (type === 'Array') return arrayProblem(values)
  if (Object.hasOwn(fieldTypes, type)) return undefined
  return `unknown type ${JSON.stringify(type)}${meant(typeWordFor(type))}`
}

/** What is wrong with the word for a relation's kind; undefined when nothing is. */
export function relTypeProblem(word: unknown): string | undefined {
  if (relationshipTypeOf(word) !== undefined) return undefined
  const right = typeof word === 'string' ? relationWordFor(word) : undefined
  return right === undefined
    ? `must be ${relTypes.slice(0, -1).join(', ')} or ${relTypes.at(-1)}`
    : `unknown relation ${JSON.stringify(word)}${meant(right)}`
}

export function isObject(value: unknown): value is Json {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
}

function arrayProblem(values: unknown): string | undefined {
  const element = isObject(values) ? values.type : undefined
  if (typeof element === 'string' && Object.hasOwn(fieldTypes, `Array_${element}`)) return undefined
  return 'unknown type "Array" of nothing known: did you mean "Array_String", "Array_Integer" or the like?'
}

/** `date` is nearer to Date than to anything that is called by another word elsewhere. */
function typeWordFor(word: string): string | undefined {
  const names = Object.keys(fieldTypes)
  const same = names.find((name) => plain(name) === plain(word))
  return same ?? typeSynonymOf(word) ?? nearName(word, names)
}

const meant = (word: string | undefined) =>
  word === undefined ? '' : `, did you mean ${/\W/.test(word) ? word : JSON.stringify(word)}?`

function unknownMember(names: readonly ShapeName[], word: string, value: unknown): string {
  const advice = adviceOn(names, word, value)
  if (advice === undefined) return 'unknown member'
  return `unknown member${advice.startsWith('did you mean') ? ', ' : ': '}${advice}`
}

/** The same word in another case; another product's word; a word that is known elsewhere; a slip of the pen. */
function adviceOn(names: readonly ShapeName[], word: string, value: unknown): string | undefined {
  const known = names.flatMap((name) => Object.keys(membersOf(name)))
  const same = known.find((name) => plain(name) === plain(word))
  if (same !== undefined) return written(same, value)
  const synonym = names.map((name) => synonymOf(name, word, value)).find((advice) => advice !== undefined)
  if (synonym !== undefined) return synonym
  const home = homes.find(([name]) => !names.includes(name) && Object.hasOwn(membersOf(name), word))
  if (home !== undefined && names[0] !== 'collection') return home[1](word)
  if (names[0] === 'collection' && Object.hasOwn(membersOf('column'), word)) return 'a field says so itself, in fields'
  const near = nearName(word, known)
  return near === undefined ? undefined : written(near, value)
}

const homes: readonly [ShapeName, (word: string) => string][] = [
  ['relation', (word) => `${word} belongs to a relation, an entry with relType`],
  ['column', (word) => `${word} belongs to a column`],
  ['collection', (word) => `${word} stands beside fields`],
  ['values', (word) => `did you mean values: {"${word}": …}?`],
]

function written(name: string, value: unknown): string {
  const json = JSON.stringify(value)
  return json === undefined || json.length > 80 ? `did you mean ${name}?` : `did you mean ${name}: ${json}?`
}
