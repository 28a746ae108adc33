import type { TSchema } from 'typebox'

type Shape = {
  readonly examples?: readonly unknown[]
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly TSchema[]
  readonly type?: string | readonly string[]
  readonly properties?: Readonly<Record<string, TSchema>>
  readonly items?: TSchema
  readonly minimum?: number
}

/**
 * A value that a shape describes: its own example, or one made from those of its parts.
 *
 * A member with an empty list of examples comes in other answers: the example has none.
 *
 * @throws {Error} naming the part that has none
 */
export function exampleOf(schema: TSchema, place = ''): unknown {
  const shape = schema as Shape
  if (shape.examples !== undefined) return shape.examples[0]
  if ('const' in shape) return shape.const
  if (shape.enum !== undefined) return shape.enum[0]
  if (shape.anyOf !== undefined) return exampleOf(shape.anyOf[0]!, place)
  if (shape.properties !== undefined)
    return Object.fromEntries(
      Object.entries(shape.properties)
        .map(([name, member]) => [name, exampleOf(member, `${place}/${name}`)] as const)
        .filter(([, example]) => example !== undefined),
    )
  if (shape.type === 'array' && shape.items !== undefined) return [exampleOf(shape.items, `${place}/0`)]
  if (shape.type === 'boolean') return true
  if (shape.type === 'null') return null
  throw new Error(`${place || 'the shape'} has no example`)
}
