import { Failure } from './command-line.ts';

/**
 * A package that an install has only where an option asks for it.
 *
 * @throws Failure saying how to install it
 */
export async function optionalPackage<T>(
  option: string,
  name: string,
  load: () => Promise<T>,
): Promise<T> {
  try {
    return await load();
  } catch (cause) {
    const how = `npm install ${name}, or npx -p mcp-interlock-cli -p ${name} mcp-interlock …`;
    throw new Failure(`${option} needs the package "${name}": ${how}`, { cause });
  }
}
