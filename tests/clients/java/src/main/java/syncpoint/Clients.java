package syncpoint;
public class Clients { public static void main(String[] a) { } }
